package dev.dissociated.flight;

import java.util.function.UnaryOperator;
import org.apache.arrow.flight.FlightProducer.StreamListener;

/** Changes what passes, and nothing else. */
record MappedListener<T>(StreamListener<T> target, UnaryOperator<T> change)
    implements StreamListener<T> {
  @Override
  public void onNext(T value) {
    target.onNext(change.apply(value));
  }

  @Override
  public void onError(Throwable failure) {
    target.onError(failure);
  }

  @Override
  public void onCompleted() {
    target.onCompleted();
  }
}
