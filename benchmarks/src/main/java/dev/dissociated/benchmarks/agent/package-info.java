/**
 * The processes that the comparison consists of. Each reads one JSON object per line from standard
 * input, does what its {@code op} says, and answers with one line; they end with their input.
 */
package dev.dissociated.benchmarks.agent;
