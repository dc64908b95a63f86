/**
 * Named, immutable objects that the processes of one host share: a {@link
 * dev.dissociated.store.Store} keeps them in a daemon, a {@link dev.dissociated.store.StoreClient}
 * puts and gets them without copies. The messages are described in format-docs/store-protocol.md.
 *
 * <p>The store lives on a listener of transport-shm, whose socket, frames, segments and memory
 * limit it shares. What the daemon knows is guarded by one lock; everything it sends goes out on
 * the listener's thread. Clients need no thread of their own to get what they ask for.
 */
package dev.dissociated.store;
