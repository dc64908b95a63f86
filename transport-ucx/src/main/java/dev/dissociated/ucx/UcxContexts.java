package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.HashMap;
import java.util.Map;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpParams;

/**
 * The contexts of this process, one per way to use UCX. They are never closed: closing one before
 * the last of its workers ends the process, and there are few.
 */
final class UcxContexts {
  /**
   * How to use UCX.
   *
   * @param tls the transports, as {@code UCX_TLS} names them; empty leaves it to the environment
   * @param ipv6 whether peers are met at addresses of IPv6
   * @param remoteReads whether peers may read memory, which lets them write as well
   */
  record Use(String tls, boolean ipv6, boolean remoteReads) {}

  private static final Map<Use, UcpContext> CONTEXTS = new HashMap<>();

  private UcxContexts() {}

  static synchronized UcpContext of(Use use) {
    return CONTEXTS.computeIfAbsent(use, UcxContexts::create);
  }

  private static UcpContext create(Use use) {
    UcpParams params =
        new UcpParams()
            .requestTagFeature()
            .requestAmFeature()
            .requestWakeupFeature()
            .setMtWorkersShared(true);
    if (use.remoteReads()) {
      params.requestRmaFeature();
    }
    // Ends of connections are told to the handler of the endpoint; nobody reads them in a log.
    configure(params, "LOG_LEVEL", "fatal");
    // A server that is started again finds connections of the one before it at its port.
    configure(params, "TCP_CM_REUSEADDR", "y");
    // A peer that is gone when UCX connects back to it otherwise ends this process: UCX takes away
    // the lane at once, with what it has to say over it (1.18; seen with peers killed as they
    // came).
    configure(params, "TCP_CONN_NB", "y");
    // PROTO_ENABLE stays on, though choosing protocols costs each connection some 20 ms: without it
    // a message sent while shared memory is still being connected overwrites the peer's ring, and
    // the parts of a large message from a peer that has it on are taken for messages each.
    if (UcxTransport.usesSharedMemory(use.tls())) {
      // Pieces through shared memory, with a core at each end, are faster than one read of the
      // other process's memory, and need no permission to read it.
      configure(params, "RNDV_THRESH", "intra:inf,inter:auto");
    }
    if (use.ipv6()) {
      // Otherwise interfaces that have both are known by their address of IPv4 alone.
      configure(params, "TCP_AF_PRIO", "inet6,inet");
    }
    if (!use.tls().isEmpty()) {
      params.setConfig("TLS", use.tls());
    }
    try {
      return new UcpContext(params);
    } catch (UcxException e) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "UCX not usable with these transports: " + e.getMessage() + ", tls=" + use.tls(),
          e);
    }
  }

  /** A default of ours, which the environment overrides. */
  private static void configure(UcpParams params, String name, String value) {
    if (System.getenv("UCX_" + name) == null) {
      params.setConfig(name, value);
    }
  }
}
