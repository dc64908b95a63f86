package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceHandle;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceMemory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The device memory that a client was told of: opened when it is first needed, once, and closed
 * when the daemon asks. What is in use is counted, so that nothing is closed before. Thread-safe.
 */
final class ClientArenas {
  private static final Logger LOG = LoggerFactory.getLogger(ClientArenas.class);

  /** One of them; its monitor guards the opening. */
  private static final class Told {
    final DeviceHandle memory;
    int uses; // guarded by the table
    DeviceMapping open;

    Told(DeviceHandle memory) {
      this.memory = memory;
    }

    synchronized DeviceMapping open() {
      if (open == null) {
        open = DeviceMemory.find().open(memory);
      }
      return open;
    }

    synchronized void close() {
      DeviceMapping last = open;
      open = null;
      if (last != null) {
        try {
          last.close();
        } catch (DissociatedException e) {
          LOG.warn("device memory was not closed: {}", e.getMessage());
        }
      }
    }
  }

  private final Map<Integer, Told> all = new HashMap<>();

  /** The daemon has told of one. */
  synchronized void told(int id, DeviceHandle memory) {
    if (all.putIfAbsent(id, new Told(memory)) != null) {
      throw DissociatedException.violation(
          "store message refused: an arena is told twice, arena=" + id);
    }
  }

  /** One use more, or less. */
  synchronized void count(int id, int change) {
    find(id).uses += change;
  }

  private Told find(int id) {
    Told told = all.get(id);
    if (told == null) {
      throw DissociatedException.violation(
          "store message refused: a buffer lies in an arena that was not told, arena=" + id);
    }
    return told;
  }

  /**
   * One that is in use, as this process reaches it; stays as long as it is in use.
   *
   * @throws DissociatedException UNSUPPORTED when there is no CUDA here; UNAVAILABLE when the
   *     memory cannot be reached
   */
  DeviceMapping open(int id) {
    Told told;
    synchronized (this) {
      told = find(id);
    }
    return told.open();
  }

  /** Closes one that the daemon wants back; false for one that is not known. */
  boolean drop(int id) {
    Told told;
    synchronized (this) {
      told = all.get(id);
      if (told == null) {
        return false;
      }
      if (told.uses > 0) {
        throw DissociatedException.violation(
            "store message refused: an arena is to be dropped that is in use, arena=" + id);
      }
      all.remove(id);
    }
    told.close();
    return true;
  }

  /** Closes all of them, of which none is in use any more; their numbers. */
  List<Integer> close() {
    Map<Integer, Told> open;
    synchronized (this) {
      open = new HashMap<>(all);
      all.clear();
    }
    open.values().forEach(Told::close);
    return new ArrayList<>(open.keySet());
  }
}
