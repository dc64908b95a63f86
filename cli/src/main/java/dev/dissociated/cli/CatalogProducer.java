package dev.dissociated.cli;

import dev.dissociated.protocol.stream.TableSource;
import dev.dissociated.store.flight.StoreProducer;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;

/** The catalogue as an ordinary Flight service that knows nothing of shared memory. */
final class CatalogProducer extends StoreProducer {
  private final Catalog catalog;

  CatalogProducer(Catalog catalog, BufferAllocator allocator) {
    super(catalog::store, allocator);
    this.catalog = catalog;
  }

  @Override
  protected List<String> names() {
    return catalog.streams();
  }

  @Override
  protected TableSource stream(String name) {
    return catalog.stream(name);
  }

  @Override
  protected boolean isObject(String name) {
    return !catalog.hasFile(name);
  }
}
