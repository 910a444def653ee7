package org.awaitility;

import java.util.concurrent.Callable;

/** As much of the library as Curator's tests of locks use. */
public class Awaitility {
	public static Awaitility await() {
		return new Awaitility();
	}

	public void until(Callable<Boolean> condition) throws Exception {
		for (long end = System.currentTimeMillis() + 10_000; !condition.call();) {
			if (System.currentTimeMillis() > end) {
				throw new AssertionError("the condition has not come true within 10 s");
			}
			Thread.sleep(10);
		}
	}
}
