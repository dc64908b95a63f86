package dev.dissociated.tests;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Where and how a program runs.
 *
 * @param prefix the words of a command that runs the program
 * @param environment what its environment has beyond that of the tests
 */
record Place(List<String> prefix, Map<String, String> environment) {
  /** As the tests themselves. */
  static final Place HERE = new Place(List.of(), Map.of());

  /** The same place with one variable more. */
  Place with(String name, String value) {
    Map<String, String> more = new HashMap<>(environment);
    more.put(name, value);
    return new Place(prefix, more);
  }

  /** Here, with UCX limited to the transports of that list. */
  static Place ucxOver(String tls) {
    return HERE.with("UCX_TLS", tls);
  }
}
