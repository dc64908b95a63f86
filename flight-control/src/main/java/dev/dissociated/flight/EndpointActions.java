package dev.dissociated.flight;

import com.google.protobuf.InvalidProtocolBufferException;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightConstants;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.FlightProducer.StreamListener;
import org.apache.arrow.flight.Result;

/**
 * The actions by which clients send endpoints back: the delegate gets them as it made them. Actions
 * whose body cannot be read are the delegate's to refuse.
 */
record EndpointActions(FlightProducer delegate, LocationDecorator locations) {
  void doAction(
      CallContext context, Action action, CallHints hints, StreamListener<Result> listener) {
    try {
      if (action.getType().equals(FlightConstants.CANCEL_FLIGHT_INFO.getType())) {
        byte[] body = locations.stripCancel(action.getBody());
        delegate.doAction(context, new Action(action.getType(), body), listener);
        return;
      }
      if (action.getType().equals(FlightConstants.RENEW_FLIGHT_ENDPOINT.getType())) {
        renew(context, action, hints, listener);
        return;
      }
    } catch (InvalidProtocolBufferException e) {
      // not ours to judge
    }
    delegate.doAction(context, action, listener);
  }

  private void renew(
      CallContext context, Action action, CallHints hints, StreamListener<Result> listener)
      throws InvalidProtocolBufferException {
    byte[] request = locations.stripRenew(action.getBody());
    if (request == action.getBody()) {
      delegate.doAction(context, action, listener);
      return;
    }
    delegate.doAction(
        context,
        new Action(action.getType(), request),
        new MappedListener<>(listener, result -> decorated(result, hints)));
  }

  private Result decorated(Result result, CallHints hints) {
    try {
      return new Result(locations.decorate(result.getBody(), hints));
    } catch (InvalidProtocolBufferException e) {
      throw CallStatus.INTERNAL
          .withDescription("the producer renewed an endpoint to something that is not one")
          .withCause(e)
          .toRuntimeException();
    }
  }
}
