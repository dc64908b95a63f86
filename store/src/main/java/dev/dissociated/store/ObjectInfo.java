package dev.dissociated.store;

/**
 * What the store knows of an object with a name.
 *
 * @param spilled whether it is on the disk and not in memory
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
    boolean spilled,
    int user,
    long bytes,
    long leases,
    long ageMillis,
    long ttlMillis) {}
