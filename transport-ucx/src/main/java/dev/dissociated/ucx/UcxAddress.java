package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * {@code host:port} as people write it: an IPv4 address, an IPv6 address in brackets, or a name.
 *
 * @param host without brackets
 */
record UcxAddress(String host, int port) {
  private static final Pattern FORM =
      Pattern.compile("(?:\\[([0-9A-Fa-f:.]+(?:%[^\\]]+)?)\\]|([^\\[\\]:]*)):([0-9]{1,5})");
  private static final int MOST_PORT = 65_535;
  private static final String LOOPBACK = "127.0.0.1";

  /**
   * Reads an address.
   *
   * @param leastPort 0 where the port may be left open
   */
  static UcxAddress parse(String text, int leastPort) {
    Matcher match = FORM.matcher(text);
    if (!match.matches()) {
      throw invalid(text, "not of the form host:port or [IPv6 address]:port");
    }
    int port = Integer.parseInt(match.group(3));
    if (port < leastPort || port > MOST_PORT) {
      throw invalid(text, "no such port");
    }
    String host = match.group(1) != null ? match.group(1) : match.group(2);
    return new UcxAddress(host.isEmpty() ? LOOPBACK : host, port);
  }

  private static DissociatedException invalid(String text, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "address refused: " + why + ", address=" + text);
  }

  /** Every address that the name stands for, in the resolver's order. */
  List<InetSocketAddress> resolve() {
    try {
      return Arrays.stream(InetAddress.getAllByName(host))
          .map(address -> new InetSocketAddress(address, port))
          .toList();
    } catch (UnknownHostException e) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "no such host, host=" + host + " port=" + port, e);
    }
  }

  /** The authority of a location. */
  @Override
  public String toString() {
    return (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
  }

  /** The same as text, for an address that was resolved. */
  static String describe(InetSocketAddress address) {
    return address == null
        ? "unknown"
        : new UcxAddress(plain(address.getAddress()), address.getPort()).toString();
  }

  private static String plain(InetAddress address) {
    String text = address.getHostAddress();
    // A zone means something on this machine only; UCX reports one of 0 for all addresses.
    int zone = address instanceof Inet6Address ? text.indexOf('%') : -1;
    return zone < 0 ? text : text.substring(0, zone);
  }

  /** Whether the address is one of this machine's, so that memory may be shared. */
  static boolean isHere(InetAddress address) {
    try {
      return address.isLoopbackAddress() || NetworkInterface.getByInetAddress(address) != null;
    } catch (SocketException e) {
      return false;
    }
  }

  /** The host by which others reach a listener here, which got {@code address}. */
  String reachableHost(InetAddress address) {
    if (!address.isAnyLocalAddress()) {
      return host;
    }
    try {
      for (NetworkInterface each : Collections.list(NetworkInterface.getNetworkInterfaces())) {
        if (!each.isUp() || each.isLoopback()) {
          continue;
        }
        for (InetAddress candidate : Collections.list(each.getInetAddresses())) {
          boolean sameKind = address instanceof Inet6Address == candidate instanceof Inet6Address;
          if (sameKind && !candidate.isLinkLocalAddress()) {
            return plain(candidate);
          }
        }
      }
    } catch (SocketException e) {
      // this machine alone, then
    }
    return address instanceof Inet6Address ? "::1" : LOOPBACK;
  }
}
