/**
 * Flight as the control channel: any {@link org.apache.arrow.flight.FlightProducer} offers its
 * streams over other transports as well ({@link dev.dissociated.flight.DissociatedProducer}), and a
 * client takes the best one it can reach ({@link dev.dissociated.flight.DissociatedClient}).
 *
 * <p>Metadata, authentication, cancellation and statuses stay on Flight; bodies travel over a data
 * connection of a transport that is found by {@code ServiceLoader}. This package knows no transport
 * by name but for the builder methods that ask for shared memory.
 */
package dev.dissociated.flight;
