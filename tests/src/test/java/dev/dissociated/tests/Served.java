package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;

/** A running {@code serve}, Java, Python or C++. */
final class Served implements AutoCloseable {
  private final Program program;
  private final JsonNode listening;

  private Served(Program program) throws Exception {
    this.program = program;
    this.listening = program.json();
  }

  static Served java(String... words) throws Exception {
    return java(Place.HERE, words);
  }

  static Served java(Place place, String... words) throws Exception {
    return new Served(Program.java(place, with("serve", words)));
  }

  static Served cpp(Place place, String... words) throws Exception {
    return new Served(Program.cpp(place, with("serve", words)));
  }

  static Served python(String... words) throws Exception {
    return new Served(Program.python(with("serve", words)));
  }

  static Served of(Peer language, String... words) throws Exception {
    return language == Peer.JAVA ? java(words) : python(words);
  }

  private static String[] with(String command, String... words) {
    List<String> all = new ArrayList<>(List.of(command));
    all.addAll(List.of(words));
    return all.toArray(String[]::new);
  }

  String flight() {
    return listening.get("flight").asText();
  }

  String socket() {
    return listening.get("socket").asText();
  }

  /** The first location of that scheme. */
  String location(String scheme) {
    for (JsonNode location : listening.get("locations")) {
      if (location.asText().startsWith(scheme + ":")) {
        return location.asText();
      }
    }
    throw new AssertionError("no such location: " + listening);
  }

  /** The pair of locations for clients like the C++ reference, as one target. */
  String reference() {
    JsonNode pair = listening.get("reference");
    return pair.get(0).asText() + "," + pair.get(1).asText();
  }

  JsonNode listening() {
    return listening;
  }

  Program program() {
    return program;
  }

  @Override
  public void close() {
    program.close();
  }
}
