package dev.dissociated.tests;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.opentest4j.TestAbortedException;

/**
 * Two hosts as far as the network goes: network namespaces of this machine, joined by a link. They
 * are named after this process and go with {@link #close}, or with this JVM.
 */
final class TwoHosts implements AutoCloseable {
  /** The address of the first host; it runs the server. */
  static final String SERVER = "10.77.61.1";

  /** The address of the second. */
  static final String CLIENT = "10.77.61.2";

  /** An address of the same network that nobody has. */
  static final String NOBODY = "10.77.61.9";

  private static final String NAME = "dissociated-" + ProcessHandle.current().pid();

  private final Thread onExit = new Thread(TwoHosts::remove);

  private TwoHosts() {
    Runtime.getRuntime().addShutdownHook(onExit);
  }

  /** Makes both; the test is skipped, with the reason, where this is not permitted. */
  static TwoHosts joined() {
    remove();
    TwoHosts hosts = new TwoHosts();
    try {
      hosts.run("ip", "netns", "add", NAME + "-a");
      hosts.run("ip", "netns", "add", NAME + "-b");
      // Names of links are short.
      String link = "dip" + ProcessHandle.current().pid() % 100_000;
      hosts.run("ip", "link", "add", link + "a", "type", "veth", "peer", "name", link + "b");
      hosts.plug("a", link + "a", SERVER);
      hosts.plug("b", link + "b", CLIENT);
      return hosts;
    } catch (TestAbortedException e) {
      hosts.close();
      throw e;
    }
  }

  private void plug(String side, String link, String address) {
    run("ip", "link", "set", link, "netns", NAME + "-" + side, "name", "eth0");
    inside(side, "ip", "address", "add", address + "/24", "dev", "eth0");
    inside(side, "ip", "link", "set", "lo", "up");
    inside(side, "ip", "link", "set", "eth0", "up");
  }

  /** Where the server runs. */
  Place server() {
    return at("a");
  }

  /** Where the client runs. */
  Place client() {
    return at("b");
  }

  private static Place at(String side) {
    // Memory is shared across namespaces, and UCX would find that out.
    return new Place(List.of("ip", "netns", "exec", NAME + "-" + side), Map.of("UCX_TLS", "tcp"));
  }

  /** Treats all that is sent, in both directions, as {@code tc qdisc} is told to. */
  void shape(String... discipline) {
    for (String side : List.of("a", "b")) {
      String[] words = {"tc", "qdisc", "replace", "dev", "eth0", "root"};
      inside(side, concat(words, discipline));
    }
  }

  /** Nothing passes any more, and nobody is told. */
  void cut() {
    // The far end of the link goes: this end keeps its address and its routes.
    inside("b", "ip", "link", "set", "eth0", "down");
  }

  private void inside(String side, String... words) {
    run(concat(new String[] {"ip", "netns", "exec", NAME + "-" + side}, words));
  }

  private static String[] concat(String[] first, String[] second) {
    String[] all = java.util.Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }

  private void run(String... words) {
    Optional<String> problem = attempt(words);
    if (problem.isPresent()) {
      throw new TestAbortedException(String.join(" ", words) + ": " + problem.get());
    }
  }

  private static Optional<String> attempt(String... words) {
    try {
      Process process = new ProcessBuilder(words).redirectErrorStream(true).start();
      process.getOutputStream().close();
      String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (!process.waitFor(60, TimeUnit.SECONDS)) {
        process.destroyForcibly();
        return Optional.of("takes too long");
      }
      return process.exitValue() == 0 ? Optional.empty() : Optional.of(said.strip());
    } catch (IOException e) {
      return Optional.of(e.getMessage());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return Optional.of("interrupted");
    }
  }

  /** The link goes with the namespaces. */
  private static void remove() {
    attempt("ip", "netns", "delete", NAME + "-a");
    attempt("ip", "netns", "delete", NAME + "-b");
  }

  @Override
  public void close() {
    remove();
    try {
      Runtime.getRuntime().removeShutdownHook(onExit);
    } catch (IllegalStateException e) {
      // it runs already
    }
  }
}
