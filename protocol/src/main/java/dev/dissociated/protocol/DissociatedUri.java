package dev.dissociated.protocol;

import static dev.dissociated.protocol.DissociatedException.Code.INVALID_ARGUMENT;

import java.net.URI;
import java.net.URISyntaxException;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * A location by which a stream can be had (specification, "URI Specification"):
 *
 * <pre>
 *   scheme "://" [authority] [path] "?want_data=" u64 ["&amp;free_data=" u64]
 *                                  ["&amp;remote_handle=" base64] *("&amp;" name "=" value)
 * </pre>
 *
 * <p>Tags are unsigned decimal. {@code remote_handle} is percent-encoded base64; both alphabets are
 * read, the standard one is written. Unknown parameters are kept. A parameter may come only once.
 * Immutable.
 */
public final class DissociatedUri {
  private static final String WANT_DATA = "want_data";
  private static final String FREE_DATA = "free_data";
  private static final String REMOTE_HANDLE = "remote_handle";

  private final String scheme;
  private final String authority;
  private final String path;
  private final Map<String, String> parameters;

  private DissociatedUri(
      String scheme, String authority, String path, Map<String, String> parameters) {
    this.scheme = scheme;
    this.authority = authority;
    this.path = path;
    this.parameters = Collections.unmodifiableMap(parameters);
  }

  /** A location without parameters. */
  public static DissociatedUri of(String scheme, String authority, String path) {
    return new DissociatedUri(
        Objects.requireNonNull(scheme), authority, path, new LinkedHashMap<>());
  }

  /**
   * Reads a location.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is not a URI, a known parameter is
   *     malformed, or a parameter comes twice
   */
  public static DissociatedUri parse(String text) {
    URI uri;
    try {
      uri = new URI(text);
    } catch (URISyntaxException e) {
      throw invalid(text, e.getMessage());
    }
    if (!StandardCharsets.US_ASCII.newEncoder().canEncode(text)) {
      throw invalid(text, "not ASCII, other characters are written as escapes");
    }
    if (uri.getScheme() == null || uri.isOpaque() || uri.getRawFragment() != null) {
      throw invalid(text, "not of the form scheme://authority/path?parameters");
    }
    Map<String, String> parameters = new LinkedHashMap<>();
    String query = uri.getRawQuery();
    if (query != null && !query.isEmpty()) {
      for (String pair : query.split("&", -1)) {
        int equals = pair.indexOf('=');
        if (equals <= 0) {
          throw invalid(text, "not name=value: " + pair);
        }
        String value = decode(text, pair.substring(equals + 1));
        if (parameters.put(decode(text, pair.substring(0, equals)), value) != null) {
          throw invalid(text, "parameter given twice: " + pair.substring(0, equals));
        }
      }
    }
    String authority = uri.getRawAuthority() == null ? "" : uri.getRawAuthority();
    String path = uri.getRawPath() == null ? "" : decode(text, uri.getRawPath());
    DissociatedUri parsed = new DissociatedUri(uri.getScheme(), authority, path, parameters);
    parsed.unsigned(WANT_DATA);
    parsed.unsigned(FREE_DATA);
    parsed.remoteHandle();
    return parsed;
  }

  private static String decode(String text, String raw) {
    try {
      // A raw '+' is a base64 digit here, not a space: RFC 3986 knows no other meaning. The detour
      // by ISO 8859-1 gives the bytes, since the decoder would replace what is not UTF-8.
      String bytes = URLDecoder.decode(raw.replace("+", "%2B"), StandardCharsets.ISO_8859_1);
      return StandardCharsets.UTF_8
          .newDecoder()
          .decode(ByteBuffer.wrap(bytes.getBytes(StandardCharsets.ISO_8859_1)))
          .toString();
    } catch (IllegalArgumentException | CharacterCodingException e) {
      throw invalid(text, "malformed escape: " + raw);
    }
  }

  private static DissociatedException invalid(String text, String reason) {
    return new DissociatedException(
        INVALID_ARGUMENT, "location refused: " + reason + ", uri=" + text);
  }

  /** The transport. */
  public String scheme() {
    return scheme;
  }

  /** Host and port, as written; empty when there is none. */
  public String authority() {
    return authority;
  }

  /** The path, decoded; empty when there is none. */
  public String path() {
    return path;
  }

  /** The tag that asks this server for a stream. */
  public Optional<Long> wantData() {
    return unsigned(WANT_DATA);
  }

  /** The tag that ends leases; empty when the server never sends by reference. */
  public Optional<Long> freeData() {
    return unsigned(FREE_DATA);
  }

  /** What is needed to reach the server's memory; a copy. */
  public Optional<byte[]> remoteHandle() {
    String value = parameters.get(REMOTE_HANDLE);
    if (value == null) {
      return Optional.empty();
    }
    try {
      return Optional.of(Base64.getDecoder().decode(value.replace('-', '+').replace('_', '/')));
    } catch (IllegalArgumentException e) {
      throw invalid(toString(), "remote_handle is not base64: " + e.getMessage());
    }
  }

  /** All parameters, decoded, in order. */
  public Map<String, String> parameters() {
    return parameters;
  }

  /** Any parameter, decoded. */
  public Optional<String> parameter(String name) {
    return Optional.ofNullable(parameters.get(name));
  }

  private Optional<Long> unsigned(String name) {
    String value = parameters.get(name);
    if (value == null) {
      return Optional.empty();
    }
    try {
      // parseUnsignedLong also takes a leading '+' and the digits of other scripts.
      if (value.chars().allMatch(c -> c >= '0' && c <= '9')) {
        return Optional.of(Long.parseUnsignedLong(value));
      }
    } catch (NumberFormatException e) {
      // told below
    }
    throw invalid(toString(), name + " is not an unsigned 64-bit decimal: " + value);
  }

  /** This location with the tag that asks for a stream. */
  public DissociatedUri withWantData(long tag) {
    return withParameter(WANT_DATA, Long.toUnsignedString(tag));
  }

  /** This location with the tag that ends leases. */
  public DissociatedUri withFreeData(long tag) {
    return withParameter(FREE_DATA, Long.toUnsignedString(tag));
  }

  /** This location with the handle to the server's memory. */
  public DissociatedUri withRemoteHandle(byte[] handle) {
    return withParameter(REMOTE_HANDLE, Base64.getEncoder().encodeToString(handle));
  }

  /** This location with one parameter more, or another value for it. */
  public DissociatedUri withParameter(String name, String value) {
    Map<String, String> copy = new LinkedHashMap<>(parameters);
    copy.put(name, value);
    return new DissociatedUri(scheme, authority, path, copy);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof DissociatedUri that && toString().equals(that.toString());
  }

  @Override
  public int hashCode() {
    return toString().hashCode();
  }

  /** The location as it is advertised; {@link #parse} reads it back. */
  @Override
  public String toString() {
    StringBuilder text = new StringBuilder(scheme).append("://").append(authority);
    text.append(encode(path).replace("%2F", "/"));
    if (authority.isEmpty() && path.isEmpty() && parameters.isEmpty()) {
      text.append('?'); // nothing behind the slashes would not be a URI
    }
    char separator = '?';
    for (Map.Entry<String, String> parameter : parameters.entrySet()) {
      text.append(separator)
          .append(encode(parameter.getKey()))
          .append('=')
          .append(encode(parameter.getValue()));
      separator = '&';
    }
    return text.toString();
  }

  private static String encode(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }
}
