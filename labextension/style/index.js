import './base.css';
import './page.css';
