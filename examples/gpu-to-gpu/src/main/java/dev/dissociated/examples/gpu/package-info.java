/** Two JVMs share batches in a GPU's memory. */
package dev.dissociated.examples.gpu;
