/** That the comparison still runs, without what takes long. */
package dev.dissociated.benchmarks.compare;
