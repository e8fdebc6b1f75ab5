"""What people look at: pictures before and after, and the page that a run leaves behind."""
