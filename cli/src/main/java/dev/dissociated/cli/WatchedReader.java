package dev.dissociated.cli;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/** Another reader, whose rows are told to somebody who watches. Owns nothing of it. */
final class WatchedReader extends ArrowReader {
  private final ArrowReader reader;
  private final Progress progress;
  private long rows;

  WatchedReader(ArrowReader reader, Progress progress) {
    super(null);
    this.reader = reader;
    this.progress = progress;
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    boolean more = reader.loadNextBatch();
    if (more) {
      rows += reader.getVectorSchemaRoot().getRowCount();
      progress.to(rows);
    }
    return more;
  }

  @Override
  public VectorSchemaRoot getVectorSchemaRoot() throws IOException {
    return reader.getVectorSchemaRoot();
  }

  @Override
  public Map<Long, Dictionary> getDictionaryVectors() throws IOException {
    return reader.getDictionaryVectors();
  }

  @Override
  public Dictionary lookup(long id) {
    return reader.lookup(id);
  }

  @Override
  public Set<Long> getDictionaryIds() {
    return reader.getDictionaryIds();
  }

  @Override
  public long bytesRead() {
    return reader.bytesRead();
  }

  @Override
  protected void closeReadSource() {
    // the reader is somebody else's
  }

  @Override
  protected Schema readSchema() throws IOException {
    return reader.getVectorSchemaRoot().getSchema();
  }
}
