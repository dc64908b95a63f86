/**
 * Record batches in memory of a device, such as a GPU. The processor cannot read it, so that
 * addresses are numbers here and never become buffers of Arrow Java. Modules that know a kind of
 * device implement these interfaces (format-docs/cuda-mapping.md).
 */
package dev.dissociated.protocol.device;
