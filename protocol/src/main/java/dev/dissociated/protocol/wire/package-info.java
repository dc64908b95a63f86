/**
 * The byte layouts of the specification as pure functions: no I/O, no threads, no Arrow vectors.
 *
 * <p>All integers are little-endian. Everything received is checked here before anything else looks
 * at it. The layouts are drawn in format-docs and pinned by the vectors in format-docs/vectors.
 */
package dev.dissociated.protocol.wire;
