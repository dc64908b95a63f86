package dev.dissociated.ucx;

import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.util.Optional;

/**
 * The tags of a listener. All but the reference's have bits 32 to 55 set somewhere and the low 32
 * bits all ones, so that no body has them, nor what a client that matches bodies by the low 32 bits
 * alone waits for. Part of them is random: a client that was told the location of another server at
 * the same port notices.
 *
 * @param reference whether the two tags of the reference's kind are listened to as well
 */
record UcxTags(
    long wantData,
    long freeData,
    long errorData,
    long wantMetadata,
    long wantBodies,
    boolean reference) {
  private static final long LOW = 0xFFFF_FFFFL;
  private static final int KIND_SHIFT = 32;
  private static final int RANDOM_SHIFT = 36;
  private static final int RANDOM_BITS = 20;

  /** Fresh tags. */
  static UcxTags random(boolean reference) {
    // Never all ones or zero: those are the control tag's, and a body's.
    long random = 1L + new SecureRandom().nextInt((1 << RANDOM_BITS) - 2);
    return new UcxTags(
        tag(random, 1), tag(random, 2), tag(random, 3), tag(random, 4), tag(random, 5), reference);
  }

  private static long tag(long random, int kind) {
    return (random << RANDOM_SHIFT) | ((long) kind << KIND_SHIFT) | LOW;
  }

  Optional<StreamPart> requestedBy(long tag) {
    if (tag == wantData) {
      return Optional.of(StreamPart.WHOLE);
    }
    if (reference && tag == wantMetadata) {
      return Optional.of(StreamPart.METADATA);
    }
    return reference && tag == wantBodies ? Optional.of(StreamPart.BODIES) : Optional.empty();
  }

  /** The end of a stream that has not even a schema. */
  static ByteBuffer emptyStream() {
    return MetadataMessage.endOfStream(0);
  }
}
