package dev.dissociated.store;

/**
 * What one client has put, for as long as it is there: the objects and the client share it. Guarded
 * by the store's lock.
 */
final class Account {
  long bytes;
  long spilled;
}
