package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * The {@code host} parameter of a location: the first 16 bytes, in hexadecimal, of SHA-256 over the
 * kernel's boot id and a nonce of the server's. Whoever connects can recompute it from its own boot
 * id and the nonce in the hello, and so knows that the socket it found is the one that was meant,
 * and not that of another host or another container under the same path.
 */
final class HostProof {
  private static final Path BOOT_ID = Path.of("/proc/sys/kernel/random/boot_id");
  private static final int LENGTH = 16;

  private HostProof() {}

  static String of(byte[] nonce) {
    try {
      byte[] boot = Files.readString(BOOT_ID).trim().getBytes(StandardCharsets.US_ASCII);
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(boot);
      digest.update(nonce);
      return HexFormat.of().formatHex(Arrays.copyOf(digest.digest(), LENGTH));
    } catch (IOException e) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "host not identified: " + e.getMessage() + ", file=" + BOOT_ID, e);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java platform has it
    }
  }
}
