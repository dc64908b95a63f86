package dev.dissociated.cli;

import java.time.Duration;
import me.tongfei.progressbar.ProgressBar;
import me.tongfei.progressbar.ProgressBarBuilder;
import me.tongfei.progressbar.ProgressBarStyle;

/** A progress bar on standard error, only when a person is watching and the work takes a while. */
final class Progress implements AutoCloseable {
  private static final long PATIENCE_NANOS = 500_000_000L;

  private final String unit;
  private final boolean wanted;
  private final long started = System.nanoTime();
  private ProgressBar bar;

  private Progress(String unit, boolean wanted) {
    this.unit = unit;
    this.wanted = wanted;
  }

  static Progress of(String unit, boolean wanted) {
    // Standard error is a terminal when this variable is set by the launcher.
    return new Progress(unit, wanted && "1".equals(System.getenv("DISSOCIATED_TTY")));
  }

  void to(long done) {
    if (!wanted || System.nanoTime() - started < PATIENCE_NANOS) {
      return;
    }
    if (bar == null) {
      bar =
          new ProgressBarBuilder()
              .setTaskName(unit)
              .setStyle(ProgressBarStyle.ASCII)
              .setInitialMax(-1)
              .showSpeed()
              .startsFrom(0, Duration.ofNanos(System.nanoTime() - started))
              .build();
    }
    bar.stepTo(done);
  }

  @Override
  public void close() {
    if (bar != null) {
      bar.close();
    }
  }
}
