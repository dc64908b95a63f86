/** Starts the agents, has them measure in interleaved rounds, and reports. */
package dev.dissociated.benchmarks.compare;
