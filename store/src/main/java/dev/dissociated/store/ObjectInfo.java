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
 * @param device the UUID of the device that buffers of it lie on; empty when all lie in host memory
 * @param deviceBytes of the buffers there
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
    long ttlMillis,
    String device,
    long deviceBytes) {
  /** An older daemon says nothing of devices. */
  public ObjectInfo {
    device = device == null ? "" : device;
  }

  /** Whether buffers of it lie on a device. */
  public boolean isOnDevice() {
    return !device.isEmpty();
  }

  /** What is told to those who know of no devices. */
  ObjectInfo withoutDevice() {
    return new ObjectInfo(
        name, type, pinned, spilled, user, bytes, leases, ageMillis, ttlMillis, "", 0);
  }
}
