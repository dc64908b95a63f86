package dev.dissociated.benchmarks.compare;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What else the machine has to do. */
final class Noise {
  /** Shares of the machine's processors above which figures are to be doubted. */
  private static final double BUSY = 0.15;

  private static final double STOLEN = 0.05;
  private static final int SAMPLE_MILLIS = 1500;
  private static final int IDLE = 4;
  private static final int WAITING = 5;
  private static final int STEAL = 8;
  private static final int COUNTED = 9;

  private final Map<String, Object> facts = new LinkedHashMap<>();
  private final List<String> doubts = new ArrayList<>();
  private long[] start;

  private Noise() {}

  /** Looks for a moment, before anything is started. */
  static Noise before() {
    Noise noise = new Noise();
    long[] first = ticks();
    try {
      Thread.sleep(SAMPLE_MILLIS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    noise.start = ticks();
    double others = 1 - share(first, noise.start, IDLE) - share(first, noise.start, WAITING);
    double load = load();
    noise.facts.put("load_before", load);
    noise.facts.put("used_by_others_before", others);
    if (others > BUSY) {
      noise.doubts.add(
          String.format(
              Locale.ROOT,
              "the machine was loaded: before the run others used %.0f%% of its processors, load"
                  + " average %.1f",
              100 * others,
              load));
    }
    return noise;
  }

  /** To be called when the run is over. */
  void after() {
    double stolen = share(start, ticks(), STEAL);
    facts.put("stolen_by_other_machines", stolen);
    if (stolen > STOLEN) {
      doubts.add(
          String.format(
              Locale.ROOT,
              "other virtual machines took %.0f%% of the processors meanwhile",
              100 * stolen));
    }
  }

  Map<String, Object> facts() {
    return facts;
  }

  List<String> doubts() {
    return doubts;
  }

  private static double share(long[] from, long[] to, int what) {
    double all = 0;
    for (int i = 1; i < COUNTED; i++) {
      all += to[i] - from[i];
    }
    return all == 0 ? 0 : (to[what] - from[what]) / all;
  }

  /** The first line of /proc/stat; zeros where there is none. */
  private static long[] ticks() {
    long[] ticks = new long[COUNTED];
    try {
      String[] words = Files.readAllLines(Path.of("/proc/stat")).get(0).split(" +");
      for (int i = 1; i < COUNTED && i < words.length; i++) {
        ticks[i] = Long.parseLong(words[i]);
      }
    } catch (IOException e) {
      // not Linux
    }
    return ticks;
  }

  private static double load() {
    try {
      return Double.parseDouble(Files.readString(Path.of("/proc/loadavg")).split(" ")[0]);
    } catch (IOException e) {
      return Double.NaN;
    }
  }
}
