/** Objects that no client of the store would put. */
package dev.dissociated.store;
