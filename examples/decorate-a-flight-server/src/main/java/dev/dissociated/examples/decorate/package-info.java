/** An ordinary Flight server, one line more, and what its clients make of it. */
package dev.dissociated.examples.decorate;
