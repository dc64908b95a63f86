package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.Objects;

/**
 * Who may read a segment: one user of this host under one identity, or everybody. Whoever has
 * mapped a segment sees whatever is written to it later, so a segment belongs to one domain for
 * life.
 *
 * @param user the user id; -1 for everybody
 * @param identity the Flight identity; empty for none
 */
public record TrustDomain(long user, String identity) {
  private static final long EVERYBODY = -1;

  /** The domain of data that every peer of this process may read. */
  public static final TrustDomain PUBLIC = new TrustDomain(EVERYBODY, "");

  /** Refuses a missing identity. */
  public TrustDomain {
    Objects.requireNonNull(identity);
    if (user < EVERYBODY || user == EVERYBODY && !identity.isEmpty()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "trust domain refused: no such user, user=" + user);
    }
  }

  /** The domain of a user of this host; the identity is empty for connections without one. */
  public static TrustDomain of(long user, String identity) {
    return new TrustDomain(user, identity);
  }

  /** The domain of this process's own user without an identity. */
  public static TrustDomain own() {
    return new TrustDomain(Integer.toUnsignedLong(Linux.user()), "");
  }

  /** Whether peers of {@code reader} may see memory of this domain. */
  boolean readableBy(TrustDomain reader) {
    return user == EVERYBODY || equals(reader);
  }
}
