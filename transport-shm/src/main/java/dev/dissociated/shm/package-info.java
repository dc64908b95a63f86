/**
 * Shared memory on one Linux host: frames over a Unix stream socket, bodies in sealed memory files
 * whose descriptors travel over that socket.
 *
 * <p>{@link dev.dissociated.shm.ShmTransport} is the way in for streams; {@link
 * dev.dissociated.shm.SharedMemory} is the way in for applications that want their vectors to lie
 * in shared memory from the start. Everything else is internal: the system calls ({@code Libc},
 * {@code Linux}), the frames ({@code ShmFrame}, {@code FrameWriter}, {@code FrameRoute}, {@code
 * FrameReader}), the memory of this process ({@code Arena}, {@code SegmentPool}, {@code Segment})
 * and the memory of peers ({@code SegmentMappings}, {@code MappedMemory}).
 *
 * <p>Threads: a listener has one thread that polls all its connections and one that keeps memory
 * ready; a client has none.
 */
package dev.dissociated.shm;
