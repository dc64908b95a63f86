/** A Java process whose tables Python processes read where they lie. */
package dev.dissociated.examples.objects;
