package dev.dissociated.store;

import java.util.List;

/** What a session is told of the store, as far as it understands it. Stateless. */
final class Reports {
  private static final int MOST_ROWS = 1000;

  private Reports() {}

  /** The answer to LIST. */
  static StoreMessage list(Catalogue catalogue, StoreMessage asked, boolean knowsDevices) {
    int most = (int) Math.max(1, Math.min(asked.a() < 0 ? MOST_ROWS : asked.a(), MOST_ROWS));
    List<ObjectInfo> rows = catalogue.list(asked.name(), asked.prefix(), most + 1);
    boolean more = rows.size() > most;
    return rows(asked, more, more ? rows.subList(0, most) : rows, knowsDevices);
  }

  /** The answer to STAT. */
  static StoreMessage stat(Catalogue catalogue, StoreMessage asked, boolean knowsDevices) {
    ObjectInfo row = catalogue.require(asked.name()).info(System.nanoTime());
    return rows(asked, false, List.of(row), knowsDevices);
  }

  private static StoreMessage rows(
      StoreMessage asked, boolean more, List<ObjectInfo> rows, boolean knowsDevices) {
    List<ObjectInfo> shown =
        knowsDevices ? rows : rows.stream().map(ObjectInfo::withoutDevice).toList();
    return ReportMessage.rows(asked.request(), more, shown);
  }

  /** The answer to USAGE. */
  static StoreMessage usage(StoreUsage usage, StoreMessage asked, boolean knowsDevices) {
    return ReportMessage.used(asked.request(), knowsDevices ? usage : usage.withoutDevices());
  }
}
