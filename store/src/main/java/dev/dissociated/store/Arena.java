package dev.dissociated.store;

import dev.dissociated.protocol.device.DeviceAllocation;
import java.util.UUID;

/**
 * One allocation of device memory that the daemon lends: to the client that asked for it until it
 * is put, then to whoever gets the object in it. Freed once nobody needs it and nobody may have it
 * open. Guarded by the store's lock.
 */
final class Arena {
  /** How far its life has come. */
  enum State {
    /** Waits for its put, or an object lies in it. */
    NEEDED,
    /** Given up; who was told of it may have it open. */
    GOING,
    /** About to be freed. */
    FREED
  }

  /** What every connection calls it. */
  final int id;

  final DeviceAllocation memory;

  /** Bytes that the client asked for, from the allocation's start. */
  final long asked;

  /** Bytes of the allocation, which count. */
  final long size;

  private final Devices devices;
  private State state = State.NEEDED;

  /** Clients that may have it open, and processes that may that were such clients. */
  private int openers;

  Arena(Devices devices, int id, DeviceAllocation memory, long asked) {
    this.devices = devices;
    this.id = id;
    this.memory = memory;
    this.asked = asked;
    this.size = memory.handle().size();
  }

  UUID device() {
    return memory.handle().device();
  }

  State state() {
    return state;
  }

  void move(State on) {
    state = on;
  }

  /** One more may open it. */
  void told() {
    openers++;
  }

  /** One of them has closed it, or has ended. */
  void forgotten() {
    openers--;
    devices.freeIfUnused(this);
  }

  boolean isOpen() {
    return openers > 0;
  }

  /** No object lies in it, and none is to. */
  void giveUp() {
    devices.giveUp(this);
  }
}
