/**
 * The store through Flight, for callers on other hosts and in languages without a client of the
 * store: {@link dev.dissociated.store.flight.StoreProducer} is the daemon's side, {@link
 * dev.dissociated.store.flight.FlightStore} a client. Descriptors, options and actions are
 * described in format-docs/flight-mapping.md. Needs the module flight-control, which the store
 * itself does not.
 */
package dev.dissociated.store.flight;
