package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.stream.BorrowedStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;

/** Where the buffers of an object on lease lie in this process, and on its devices. Immutable. */
final class ObjectParts {
  private final StoreChannel channel;
  private final List<BufferRef> refs;

  /** Where they lie in this process; nowhere, if on a device. */
  private final List<BorrowedStream.Body> places;

  ObjectParts(StoreChannel channel, List<BufferRef> refs) {
    this.channel = channel;
    this.refs = List.copyOf(refs);
    List<BorrowedStream.Body> found = new ArrayList<>(refs.size());
    for (BufferRef ref : refs) {
      found.add(new BorrowedStream.Body(channel.resolve(ref), ref.length()));
    }
    places = List.copyOf(found);
  }

  long bytes() {
    return refs.stream().mapToLong(BufferRef::length).sum();
  }

  int size() {
    return refs.size();
  }

  private static boolean isOnDevice(BufferRef ref) {
    return ref.liesIn(BufferRef.Kind.DEVICE);
  }

  boolean isOnDevice() {
    return refs.stream().anyMatch(ObjectParts::isOnDevice);
  }

  /**
   * Where one of them lies in this process.
   *
   * @throws DissociatedException UNSUPPORTED when it lies on a device
   */
  BorrowedStream.Body inHostMemory(String name, int index) {
    if (isOnDevice(refs.get(index))) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "object not read in host memory: it lies on a device, name=" + name + " buffer=" + index);
    }
    return places.get(index);
  }

  List<BorrowedStream.Body> allInHostMemory(String name) {
    for (int i = 0; i < refs.size(); i++) {
      inHostMemory(name, i);
    }
    return places;
  }

  /** Metadata in host memory, and bodies by their addresses on the device. */
  List<BorrowedStream.Body> bodiesOnDevice(String name) {
    List<BorrowedStream.Body> bodies = new ArrayList<>(refs.size());
    bodies.add(inHostMemory(name, 0));
    for (int i = 1; i < refs.size(); i++) {
      BufferRef ref = refs.get(i);
      if (ref.liesIn(BufferRef.Kind.SHARED)) {
        throw inHost(name, i);
      }
      bodies.add(new BorrowedStream.Body(address(ref), ref.length()));
    }
    return bodies;
  }

  private long address(BufferRef ref) {
    return isOnDevice(ref)
        ? channel.arenas().open(ref.arena()).resolve(ref.offset(), ref.length())
        : 0;
  }

  private static DissociatedException inHost(String name, int buffer) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT,
        "object not read on a device: it lies in host memory, name=" + name + " buffer=" + buffer);
  }

  /** The device's memory as this process reaches it; all of an object lies on one device. */
  DeviceMapping open(String name) {
    BufferRef first =
        refs.stream()
            .filter(ObjectParts::isOnDevice)
            .findFirst()
            .orElseThrow(() -> inHost(name, 0));
    return channel.arenas().open(first.arena());
  }

  /** A copy of one of them. */
  ArrowBuf copyToHost(String name, int index, BufferAllocator target) {
    BufferRef ref = refs.get(index);
    ArrowBuf copy = target.buffer(ref.length());
    try {
      if (isOnDevice(ref)) {
        DeviceMapping memory = channel.arenas().open(ref.arena());
        long from = memory.resolve(ref.offset(), ref.length());
        memory.copyToHost(copy.memoryAddress(), from, ref.length());
      } else if (ref.length() > 0) {
        MemoryUtil.copyMemory(
            inHostMemory(name, index).address(), copy.memoryAddress(), ref.length());
      }
      return copy.writerIndex(ref.length());
    } catch (RuntimeException e) {
      copy.close();
      throw e;
    }
  }
}
