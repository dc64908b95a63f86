package dev.dissociated.tests;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/**
 * What can be asked wrongly of UCX: one clear line, the right exit code, and the server goes on.
 */
@RequiresUcx
class UcxBadInputTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  @Test
  void shouldSayThatANameIsUnknownAndGoOn() throws Exception {
    try (Served served =
        Served.java("--transports", "ucx", "--advertise", "reference", "flights=" + FLIGHTS)) {
      Commands.refused(
          Place.HERE, 1, "no such", "get", served.flight(), "nonsense", "--via", "ucx");
      Commands.refused(Place.HERE, 1, "no such", "get", served.location("ucx"), "nonsense");
      Commands.refused(Place.HERE, 1, "no such", "get", served.location("ucx"), "");
      Commands.refused(Place.HERE, 1, "closed", "get", served.reference(), "nonsense");
      Commands.got(served.flight(), "--via", "ucx");
      Await.noLeases(served);
    }
  }

  @Test
  void shouldSayThatThePlaceIsTakenOrMakesNoSense() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      String place = "127.0.0.1:" + taken.getLocalPort();
      Commands.refused(Place.HERE, 1, place, "serve", "--ucx", place, "f=" + FLIGHTS);
      Commands.refused(Place.HERE, 1, place, "get", "ucx://" + place, "f");
    }
    for (String place : new String[] {"no-port", "127.0.0.1:99999", "no-such-host.invalid:1"}) {
      Commands.refused(Place.HERE, 1, place.split(":")[0], "serve", "--ucx", place, "f=" + FLIGHTS);
      Commands.refused(Place.HERE, 1, place.split(":")[0], "get", "ucx://" + place, "f");
    }
  }

  @Test
  void shouldNotTakeAnotherServerForTheOneThatAdvertised() throws Exception {
    try (Served first = Served.java("--transports", "ucx", "flights=" + FLIGHTS);
        Served second = Served.java("--transports", "ucx", "flights=" + FLIGHTS)) {
      String place = second.location("ucx").replaceAll("\\?.*", "");
      String stale = first.location("ucx").replaceAll("ucx://[^?]*", place);
      Commands.refused(Place.HERE, 1, "not the server", "get", stale, "flights");
      Commands.got(second.location("ucx"));
    }
  }

  @Test
  void shouldTellTargetsApartThatAreNoPair() throws Exception {
    Commands.refused(
        Place.HERE, 2, "want_data", "get", "ucx://h:1?want_data=1,ucx://h:2?want_data=2", "x");
    Commands.refused(Place.HERE, 2, "shm, ucx or cuda", "get", "fabric://h:1", "x");
  }
}
