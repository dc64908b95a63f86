package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.regex.Pattern;

/**
 * What a location of the scheme {@value #SCHEME} says of memory: the handle by which it is opened,
 * whose it is, and where (format-docs/cuda-mapping.md). Immutable.
 *
 * @param handle opens the allocation that addresses are offsets into; empty where they are absolute
 * @param exporter which allocation of which process, never used again
 * @param device the device that the memory belongs to
 * @param event what to wait for before the memory is read; empty when it is there already
 */
record CudaLocation(Optional<byte[]> handle, String exporter, UUID device, Optional<byte[]> event) {
  static final String SCHEME = "cuda";

  /** The transport that carries the messages. */
  static final String CARRIER = "shm";

  private static final String EXPORTER = "exporter";
  private static final String DEVICE = "device";
  private static final String EVENT = "event";
  private static final Pattern EXPORTER_FORM = Pattern.compile("[0-9a-f]{16}\\.[0-9]{1,19}");
  private static final Pattern DEVICE_FORM =
      Pattern.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");

  /** What the carrier knows as well; whatever else it may need is passed on. */
  private static final List<String> OWN = List.of("remote_handle", EXPORTER, DEVICE, EVENT);

  /**
   * What {@code uri} says of memory; empty when it says nothing.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it says it wrongly
   */
  static Optional<CudaLocation> of(DissociatedUri uri) {
    Optional<String> exporter = uri.parameter(EXPORTER);
    Optional<String> device = uri.parameter(DEVICE);
    Optional<byte[]> handle = uri.remoteHandle();
    Optional<byte[]> event = uri.parameter(EVENT).map(text -> base64(uri, text));
    if (exporter.isEmpty() && device.isEmpty() && handle.isEmpty() && event.isEmpty()) {
      return Optional.empty();
    }
    if (exporter.isEmpty() || !EXPORTER_FORM.matcher(exporter.get()).matches()) {
      throw refused(uri, "exporter is not PROCESS.ALLOCATION");
    }
    if (device.isEmpty() || !DEVICE_FORM.matcher(device.get()).matches()) {
      throw refused(uri, "device is not a UUID");
    }
    if (handle.isPresent() && handle.get().length != Driver.HANDLE_LENGTH) {
      throw refused(uri, "remote_handle is not of " + Driver.HANDLE_LENGTH + " bytes");
    }
    if (event.isPresent() && event.get().length != Driver.HANDLE_LENGTH) {
      throw refused(uri, "event is not of " + Driver.HANDLE_LENGTH + " bytes");
    }
    return Optional.of(
        new CudaLocation(handle, exporter.get(), UUID.fromString(device.get()), event));
  }

  private static byte[] base64(DissociatedUri uri, String text) {
    try {
      return java.util.Base64.getDecoder().decode(text.replace('-', '+').replace('_', '/'));
    } catch (IllegalArgumentException e) {
      throw refused(uri, "event is not base64");
    }
  }

  private static DissociatedException refused(DissociatedUri uri, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "location refused: " + why + ", uri=" + uri);
  }

  /** {@code uri} with what is said here. */
  DissociatedUri addTo(DissociatedUri uri) {
    DissociatedUri said =
        uri.withParameter(EXPORTER, exporter).withParameter(DEVICE, device.toString());
    if (event.isPresent()) {
      String text = java.util.Base64.getEncoder().encodeToString(event.get());
      said = said.withParameter(EVENT, text);
    }
    return handle.isPresent() ? said.withRemoteHandle(handle.get()) : said;
  }

  /** The location of the carrier under a location of ours. */
  static DissociatedUri carrierOf(DissociatedUri uri) {
    if (!uri.scheme().equals(SCHEME) || !uri.authority().isEmpty() || uri.path().isEmpty()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "not connected: not of the form cuda:///path, uri=" + uri);
    }
    return rewritten(uri, CARRIER);
  }

  /** Our location over one of the carrier's. */
  static DissociatedUri over(DissociatedUri carrier) {
    return rewritten(carrier, SCHEME);
  }

  private static DissociatedUri rewritten(DissociatedUri uri, String scheme) {
    DissociatedUri result = DissociatedUri.of(scheme, uri.authority(), uri.path());
    for (Map.Entry<String, String> parameter : uri.parameters().entrySet()) {
      if (!OWN.contains(parameter.getKey())) {
        result = result.withParameter(parameter.getKey(), parameter.getValue());
      }
    }
    return result;
  }
}
