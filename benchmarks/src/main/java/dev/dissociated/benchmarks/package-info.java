/**
 * Measures this project beside what people use today, on the machine at hand.
 *
 * <p>{@link dev.dissociated.benchmarks.Main} runs the comparison: it starts server and consumer
 * processes ({@code agent}), has them measure in interleaved rounds ({@code compare}), and writes
 * the results. The JMH benchmarks of single hot paths lie in the packages of the classes that they
 * measure.
 */
package dev.dissociated.benchmarks;
