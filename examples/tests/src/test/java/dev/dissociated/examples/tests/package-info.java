/** Starts the examples as their READMEs say and looks at what they print. */
package dev.dissociated.examples.tests;
