/** Two JVMs share batches that one of them makes straight in shared memory. */
package dev.dissociated.examples.share;
