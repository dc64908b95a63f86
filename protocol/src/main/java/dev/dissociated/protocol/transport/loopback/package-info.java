/**
 * A complete transport inside one process: the one to read first, and the one that tests of the
 * stream code run on without any help of the operating system's.
 */
package dev.dissociated.protocol.transport.loopback;
