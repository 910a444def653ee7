import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectUniqueId;

import java.util.ArrayList;
import java.util.List;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the tests of one class, and prints a line for each: PASS, FAIL or SKIP, and its name. What fails gets three tries,
 * as in Curator's own build.
 */
public class Run implements TestExecutionListener {
	private final boolean last;
	private final List<DiscoverySelector> failed = new ArrayList<>();

	private Run(boolean last) {
		this.last = last;
	}

	public static void main(String[] args) throws Exception {
		List<DiscoverySelector> tests = List.of(selectClass(args[0]));
		for (int tries = 1; !tests.isEmpty() && tries <= 3; tries++) {
			Run run = new Run(tries == 3);
			Launcher launcher = LauncherFactory.create();
			launcher.execute(LauncherDiscoveryRequestBuilder.request().selectors(tests).build(), run);
			tests = run.failed;
		}
		System.exit(0); // whatever threads the tests have left
	}

	@Override
	public void executionSkipped(TestIdentifier test, String reason) {
		print("SKIP", test);
	}

	@Override
	public void executionFinished(TestIdentifier test, TestExecutionResult result) {
		if (result.getStatus() == TestExecutionResult.Status.SUCCESSFUL) {
			print("PASS", test);
			return;
		}
		result.getThrowable().ifPresent(Throwable::printStackTrace);
		if (last) {
			print("FAIL", test);
		} else {
			print("AGAIN", test);
			failed.add(selectUniqueId(test.getUniqueId()));
		}
	}

	private static void print(String outcome, TestIdentifier test) {
		if (test.isTest()) {
			System.out.println(outcome + " " + test.getDisplayName());
		}
	}
}
