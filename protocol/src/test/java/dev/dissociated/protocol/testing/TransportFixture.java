package dev.dissociated.protocol.testing;

import dev.dissociated.protocol.testing.TransportHarness.Accepted;
import dev.dissociated.protocol.transport.Connection;

/** What every part of {@link TransportContract} works with. */
interface TransportFixture {
  /** Fresh for every test. */
  TransportHarness harness();

  /** A client of the harness's listener. */
  default Connection connect() {
    return harness().connect(harness().listener());
  }

  /** The next connection at the server. */
  default Accepted accepted() {
    return harness().accepted();
  }
}
