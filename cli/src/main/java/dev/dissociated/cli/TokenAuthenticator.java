package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.security.MessageDigest;
import java.util.Set;
import org.apache.arrow.flight.CallHeaders;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.auth2.CallHeaderAuthenticator;

/** Lets only callers in who know the one token. */
final class TokenAuthenticator implements CallHeaderAuthenticator {
  private static final String HEADER = "authorization";
  private static final String SCHEME = "Bearer ";
  private static final int SHORTEST = 8;
  private static final int LONGEST = 4096;
  private static final Set<PosixFilePermission> OF_OTHERS =
      Set.of(
          PosixFilePermission.GROUP_READ,
          PosixFilePermission.GROUP_WRITE,
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE);

  private final byte[] token;

  private TokenAuthenticator(byte[] token) {
    this.token = token;
  }

  /**
   * Reads the token, which is the file's one line.
   *
   * @throws DissociatedException when it is not there, others may read or write it, or it is none
   */
  static TokenAuthenticator of(Path file) throws IOException {
    String text;
    try {
      if (Files.getPosixFilePermissions(file).stream().anyMatch(OF_OTHERS::contains)) {
        throw new DissociatedException(
            Code.PERMISSION_DENIED,
            "token not used: others may read or write its file (chmod 600), file=" + file);
      }
      text = Files.readString(file, StandardCharsets.ISO_8859_1).strip();
    } catch (NoSuchFileException e) {
      throw new DissociatedException(Code.NOT_FOUND, "no such token file, file=" + file, e);
    }
    if (text.length() < SHORTEST
        || text.length() > LONGEST
        || !text.chars().allMatch(c -> c > ' ' && c < 0x7f)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "token not used: it must be one line of "
              + SHORTEST
              + " to "
              + LONGEST
              + " printable characters without spaces, file="
              + file);
    }
    return new TokenAuthenticator(text.getBytes(StandardCharsets.US_ASCII));
  }

  @Override
  public AuthResult authenticate(CallHeaders headers) {
    String said = headers.get(HEADER);
    boolean known =
        said != null
            && said.regionMatches(true, 0, SCHEME, 0, SCHEME.length())
            && MessageDigest.isEqual(
                token, said.substring(SCHEME.length()).getBytes(StandardCharsets.ISO_8859_1));
    if (!known) {
      throw CallStatus.UNAUTHENTICATED
          .withDescription("call refused: it needs the header authorization: Bearer TOKEN")
          .toRuntimeException();
    }
    return () -> "token";
  }
}
