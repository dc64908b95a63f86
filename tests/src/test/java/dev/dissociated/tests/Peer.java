package dev.dissociated.tests;

import java.io.IOException;

/** The languages whose peers take the same words. */
enum Peer {
  JAVA,
  PYTHON;

  Program run(String... words) throws IOException {
    return this == JAVA ? Program.java(words) : Program.python(words);
  }
}
