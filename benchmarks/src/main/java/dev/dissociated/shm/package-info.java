/** JMH benchmarks of what this package does not show to others. */
package dev.dissociated.shm;
