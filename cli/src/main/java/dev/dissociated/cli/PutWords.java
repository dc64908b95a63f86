package dev.dissociated.cli;

import dev.dissociated.store.PutOptions;
import java.time.Duration;
import picocli.CommandLine.Option;

/** How objects are to be put, as commands take it. */
final class PutWords {
  @Option(names = "--replace", description = "Take the name over if it is taken.")
  private boolean replace;

  @Option(names = "--pin", description = "Never evict it.")
  private boolean pin;

  @Option(
      names = "--ttl",
      paramLabel = "SECONDS",
      description = "How long it lives; until it is deleted by default.")
  private double ttl;

  PutOptions options() {
    return new PutOptions(replace, pin, Duration.ofNanos(Math.round(Math.max(0, ttl) * 1e9)));
  }
}
