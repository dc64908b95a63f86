package dev.dissociated.protocol.transport;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Who is at the other end, as the transport itself knows it.
 *
 * @param user the user the operating system vouches for (the uid, in decimal); empty when unknown
 * @param process the process id; -1 when unknown
 * @param address what to call the peer in messages
 */
public record Peer(String user, long process, String address) {
  private static final String OWN_USER = ownUser();

  private static String ownUser() {
    try {
      return String.valueOf(Files.getAttribute(Path.of("/proc/self"), "unix:uid"));
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
      return "unknown";
    }
  }

  /** The user of this process, in the form of {@link #user}. */
  public static String currentUser() {
    return OWN_USER;
  }

  /** Whether the operating system vouches that the peer runs as the same user as this process. */
  public boolean isSameUser() {
    return user.equals(OWN_USER);
  }
}
