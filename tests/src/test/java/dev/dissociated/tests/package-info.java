/**
 * Tests across modules and processes: real servers, real consumers, killed for real.
 *
 * <p>Python peers run when the system property or environment variable {@code DISSOCIATED_PYTHON}
 * names an interpreter that has the package installed.
 */
package dev.dissociated.tests;
