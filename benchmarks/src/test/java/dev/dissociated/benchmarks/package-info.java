/** That the benchmarks still run; what they measure is no matter of tests. */
package dev.dissociated.benchmarks;
