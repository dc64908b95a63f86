package dev.dissociated.store;

/**
 * What the store knows of an object with a name.
 *
 * @param user the user id of who put it
 * @param bytes of all its buffers
 * @param leases how many are held on it
 * @param ageMillis since it was put
 * @param ttlMillis how much longer it lives; 0 when it was given no time
 */
public record ObjectInfo(
    String name,
    ObjectType type,
    boolean pinned,
    int user,
    long bytes,
    long leases,
    long ageMillis,
    long ttlMillis) {}
