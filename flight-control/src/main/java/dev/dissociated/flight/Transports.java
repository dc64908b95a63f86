package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceTransport;
import dev.dissociated.protocol.transport.Transport;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;

/** The transports on the class path, the fastest first. */
final class Transports {
  /** The scheme of locations in a device's memory, which nobody gets who did not ask for it. */
  static final String DEVICE = "cuda";

  /** Device memory is the last: who wants it in host memory has it copied. */
  private static final List<String> PREFERENCE = List.of("shm", "ucx", DEVICE);

  private Transports() {}

  /** The place of a scheme in the order of preference. */
  static int rank(String scheme) {
    int rank = PREFERENCE.indexOf(scheme);
    return rank < 0 ? PREFERENCE.size() : rank;
  }

  /** All of them. Whether this machine can use one is not asked here: that may load libraries. */
  static List<Transport> all() {
    List<Transport> found = new ArrayList<>();
    ServiceLoader.load(Transport.class).forEach(found::add);
    found.sort(
        Comparator.comparingInt((Transport t) -> rank(t.scheme()))
            .thenComparing(Transport::scheme));
    return found;
  }

  /** The transport of that scheme, whether or not this machine can use it. */
  static Optional<Transport> find(String scheme) {
    for (Transport transport : ServiceLoader.load(Transport.class)) {
      if (transport.scheme().equals(scheme)) {
        return Optional.of(transport);
      }
    }
    return Optional.empty();
  }

  /**
   * The transport of devices' memory.
   *
   * @throws DissociatedException UNSUPPORTED when there is none, or none that can be used
   */
  static DeviceTransport requireDevice(List<Transport> transports) {
    for (Transport transport : transports) {
      if (transport instanceof DeviceTransport device) {
        device
            .unavailable()
            .ifPresent(
                reason -> {
                  throw new DissociatedException(Code.UNSUPPORTED, reason);
                });
        return device;
      }
    }
    throw new DissociatedException(
        Code.UNSUPPORTED, "CUDA not available: the module cuda-device is not on the class path");
  }

  /**
   * The transport of that scheme.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is not on the class path
   */
  static Transport require(String scheme) {
    return find(scheme)
        .orElseThrow(
            () ->
                new DissociatedException(
                    Code.INVALID_ARGUMENT,
                    "no such transport: its module is not on the class path, scheme=" + scheme));
  }
}
